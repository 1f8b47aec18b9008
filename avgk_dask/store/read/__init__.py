"""Reading stores: opened, listed, checked, decoded."""
