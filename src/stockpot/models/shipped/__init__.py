"""Models as they are shipped: ONNX files, exported programs, endpoints and plain functions."""
