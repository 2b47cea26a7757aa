"""The SQL front end: a statement becomes the steps that the fluent API builds. A second way to write an operator, and no second engine."""
