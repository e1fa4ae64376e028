"""What koff asks for, one module each: the request with its I/O, the result, when it is due."""
