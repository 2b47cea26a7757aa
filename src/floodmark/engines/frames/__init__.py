"""DataFrames made from an operator's steps, the same ones in both modes. No Delta table is opened here."""
