"""Writing stores: drafts under a lease, journals, parts and joins."""
