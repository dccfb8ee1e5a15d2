"""How the admin writes dates; Django looks here, by `FORMAT_MODULE_PATH`."""
