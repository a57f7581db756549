"""How the embedded autoencoder is trained."""
