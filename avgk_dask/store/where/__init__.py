"""Where stores are: paths, URLs, object stores, and what of them may be shown."""
