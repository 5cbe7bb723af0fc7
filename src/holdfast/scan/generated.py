"""Names of folders that tools generate and can generate again: dependencies, caches, build output."""

from __future__ import annotations

DEPENDENCY_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", "jspm_packages", ".pnpm-store", ".sass-cache"),
        *(".venv", "__pycache__", "__pypackages__", ".eggs", ".tox", ".nox", ".direnv"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".pytype"),
        *(".gradle", ".terraform", ".terragrunt-cache", ".dart_tool", ".stack-work", "elm-stuff"),
        *(".zig-cache", ".ccls-cache", ".cpcache", ".shadow-cljs"),
    }
)
"""Left out whatever git's rules say: names that nobody gives to a folder of sources."""

BUILD_FOLDERS = frozenset(
    {
        *("build", "dist", "out", "target", "bin", "obj", "Release", "Debug"),
        *("_build", ".build", "cmake-build-debug", "cmake-build-release", "CMakeFiles", "zig-out", "_site"),
        *(".next", ".nuxt", ".output", ".svelte-kit", ".angular", ".astro", ".docusaurus", ".vite"),
        *(".cache", ".parcel-cache", ".turbo", ".nx", ".webpack", ".rollup.cache", "storybook-static"),
        *("coverage", "htmlcov", ".nyc_output", ".hypothesis", ".import_linter_cache", ".benchmarks"),
        *("vendor", "deps", "Pods", "Carthage", "DerivedData", "venv", "env", "ENV", "virtualenv", ".pixi", ".conda"),
        *("eggs", "develop-eggs", "wheels", "sdist", "pip-wheel-metadata", ".pybuilder", ".bloop", ".metals"),
        *(".serverless", ".aws-sam", "cdk.out", "bazel-bin", "bazel-out", "bazel-testlogs"),
    }
)
"""Left out only where git's rules ignore them: some projects keep sources under these names."""
