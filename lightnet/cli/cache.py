"""`lightnet cache`: where compiled kernels and weights of executables are kept on disk, how much there is, and how to
be rid of it.

Imports llvmlite, no xDSL.
"""

from __future__ import annotations

from lightnet.cli import common


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    parser = common.ToolParser("lightnet cache",
                           description="The cache of compiled kernels, and of the weights of executables that run: "
                           "LIGHTNET_CACHE names its folder (off: none), LIGHTNET_CACHE_SIZE and LIGHTNET_WEIGHTS_SIZE "
                           "bound it (MiB).", allow_abbrev=False)  # fmt: skip
    parser.add_argument(
        "action",
        choices=("info", "clear"),
        nargs="?",
        default="info",
        help="info (default), or clear: remove everything",
    )
    args = parser.parse_args(argv)
    from lightnet.backends.llvm import cache
    from lightnet.runtime import copies

    if args.action == "clear":
        count = cache.clear_cache() + copies.clear_copies()
        print(f"removed {count} entr{'y' if count == 1 else 'ies'}")
        return 0
    found = cache.info()
    if found.folder is None:
        print(f"no cache: {found.reason}")
        return 0
    print(f"folder   {found.folder}\nentries  {found.entries}")
    print(f"size     {found.nbytes / 2**20:.1f} MiB of at most {found.bound / 2**20:.0f} MiB")
    print(f"weights  {copies.copied_bytes() / 2**20:.1f} MiB of at most {copies.copies_limit() / 2**20:.0f} MiB")
    return 0
