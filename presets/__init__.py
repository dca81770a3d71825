"""The built-in presets: TOML files only. `distrain.runners.config.presets` reads them."""
