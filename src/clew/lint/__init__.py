"""Silent bugs in source: reads files, never imports or runs them."""
