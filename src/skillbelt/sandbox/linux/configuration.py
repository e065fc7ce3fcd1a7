"""The files in /etc that programs need.

None of them reveals anything about the host, its users or their secrets.
"""

import glob
import os
from functools import lru_cache

# Debian keeps parts of these programs here: without them LibreOffice exits at once, ImageMagick
# finds no fonts, Java no security settings.
_FOLDERS = ("alternatives", "fonts", "libreoffice", "ImageMagick-[67]", "java-*-openjdk", "texmf",
            "ghostscript", "chromium.d", "perl", "groff", "vulkan", "OpenCL")  # fmt: skip
# Not the whole folders of R and Chromium: Renviron.site and Rprofile.site hold tokens of sites, and
# the policies of Chromium hold proxies and the key that enrols a machine.
_FILES = ("ld.so.cache", "mime.types", "magic", "papersize", "services", "protocols",
          "ssl/openssl.cnf", "R/Renviron", "R/Makeconf", "R/ldpaths", "R/javaconf",
          "R/repositories", "chromium/master_preferences",
          "chromium/initial_preferences")  # fmt: skip


@lru_cache(maxsize=1)
def shown_folders() -> tuple[str, ...]:
    """Return the folders of /etc that runs see."""
    return tuple(path for path in _matching(_FOLDERS) if os.path.isdir(path))


@lru_cache(maxsize=1)
def shown_files() -> tuple[str, ...]:
    """Return the single files of /etc that runs see."""
    return tuple(path for path in _matching(_FILES) if os.path.isfile(path))


def _matching(patterns: tuple[str, ...]) -> list[str]:
    return [path for one in patterns for path in sorted(glob.glob(f"/etc/{one}"))]
