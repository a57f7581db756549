"""Digital: elastic, pixelate and JPEG."""
