"""Event time: watermarks, their learned bounds, and to which windows a row belongs."""
