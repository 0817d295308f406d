"""The icon in the panel: pictures, and one backend for each way a desktop shows them."""
