"""Warpline: RDMA in user space. This package has a command and libraries, and nothing to call from Python."""

import os

# Where the files are, as below a prefix such as /usr: bin, include, lib, lib/pkgconfig.
prefix = os.path.dirname(os.path.abspath(__file__))
