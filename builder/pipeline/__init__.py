"""From a request to built images: load, resolve, compile, prepare, run."""
