"""What both ends of the wire use: blocks, images, messages, errors, flags."""
