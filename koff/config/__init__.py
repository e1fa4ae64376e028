"""The configuration that users write into files and in the environment: `koff.yaml`, properties."""
