"""The evidence map: claims, the quotes behind them, and how far the sources carry a conclusion."""
