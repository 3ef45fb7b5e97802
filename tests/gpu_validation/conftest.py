import sys
from pathlib import Path

# Helpers of these tests (scenes.py) are imported by name.
sys.path.insert(0, str(Path(__file__).parent))
