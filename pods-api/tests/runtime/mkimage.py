#!/usr/bin/env python3
"""Writes a container image to a tar archive (OCI image layout), without registry, daemon or network.

usage: mkimage.py ARCHIVE REFERENCE ENTRYPOINT [/PATH=FILE | /PATH->TARGET]...

ENTRYPOINT is a JSON array. Each further argument puts a host file, or a symbolic link, into the one layer.
"""

import hashlib
import io
import json
import sys
import tarfile

OCI = "application/vnd.oci.image."


def add(archive, name, content=b"", mode=0o644, **fields):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(content))


def layer(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            add(archive, directory, mode=0o755, type=tarfile.DIRTYPE)
        for entry in entries:
            if "->" in entry:
                path, target = entry.split("->", 1)
                add(archive, path.lstrip("/"), type=tarfile.SYMTYPE, linkname=target)
            else:
                path, source = entry.split("=", 1)
                with open(source, "rb") as file:
                    add(archive, path.lstrip("/"), file.read(), mode=0o755)
    return buffer.getvalue()


class Blobs:
    """The content-addressed store of the layout."""

    def __init__(self):
        self.contents = {}

    def put(self, kind, content):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return {"mediaType": OCI + kind, "digest": "sha256:" + digest, "size": len(content)}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    path, reference, entrypoint, *entries = sys.argv[1:]
    platform = {"architecture": "amd64", "os": "linux"}
    blobs = Blobs()
    files = blobs.put("layer.v1.tar", layer(entries))
    config = blobs.put("config.v1+json", {
        **platform,
        "config": {"Entrypoint": json.loads(entrypoint), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [files["digest"]]},
    })
    manifest = blobs.put("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": [files],
    })
    index = {"schemaVersion": 2, "manifests": [{
        **manifest, "platform": platform, "annotations": {"io.containerd.image.name": reference},
    }]}
    with tarfile.open(path, "w") as archive:
        add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add(archive, "index.json", json.dumps(index).encode())
        for digest, content in blobs.contents.items():
            add(archive, "blobs/sha256/" + digest, content)


main()
