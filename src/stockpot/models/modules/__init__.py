"""Networks with parts added to them, and their folders: routers, experts, corrections."""
