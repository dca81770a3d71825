"""Parts of screens. They hold no data: they show what they are given."""
