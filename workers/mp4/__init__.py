"""Write MP4 files from bare AAC frames: nothing is decoded or encoded."""
