"""Zarr, obstore and fsspec: opening score stores, planning bands, writing. Nothing else imports zarr."""
