"""The JSON API under /api, and Burrow's read endpoints under /v3. Sends no request to Kafka.

One table (`endpoints`) has the paths, the parameters and the shapes of the responses. Requests are checked by
it, and the OpenAPI description is built from it.
"""
