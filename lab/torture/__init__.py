"""Run a real installation through every fault, and look for what was lost or published twice."""
