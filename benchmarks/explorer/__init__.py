"""The explorer: its screen as text, and how soon pictures follow keys."""
