"""The demo: flights and weather of New York in 2013, and queries worth asking of them."""
