"""What a release is made of: wheel and sdist, the script, the workflows."""
