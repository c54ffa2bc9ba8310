"""Where downloads, decoded data and compiled helpers are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return $COTERIE_DATA, or coterie's folder where the platform keeps caches."""
    import platformdirs

    set_by_user = os.environ.get("COTERIE_DATA")
    return Path(set_by_user) if set_by_user else platformdirs.user_cache_path("coterie")
