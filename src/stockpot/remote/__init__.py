"""Run folders that lie elsewhere: addresses, storage through fsspec, and a copy to work in."""
