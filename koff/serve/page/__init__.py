"""The page at `/`: files that the browser gets as they are. All data come from the API."""
