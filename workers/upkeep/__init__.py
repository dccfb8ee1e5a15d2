"""What any worker does now and then: free what was lost, remove what nothing names."""
