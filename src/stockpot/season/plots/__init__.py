"""Pictures of seasoning: small SVG files drawn from matrices of soups x images."""
