"""The built-in presets: TOML files and nothing else. `runners.presets` reads them."""
