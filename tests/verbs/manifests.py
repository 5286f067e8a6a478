"""Checks the form of the manifests in a page: manifests.py PAGE. Every block of YAML is one document of a known kind.

A definition has for each field its type, and `?` after a name that may be absent: {} for objects with these fields,
[type] for lists, dict for any names. Unknown fields are errors.
"""

import re
import shlex
import sys

import yaml

CONTAINER = {
    "name": str,
    "image": str,
    "command?": [str],
    "args?": [str],
    "resources?": {"limits?": dict, "requests?": dict},
}
TEMPLATE = {"spec": {"restartPolicy?": str, "containers": [CONTAINER]}}
REPLICAS = {"replicas": int, "template": TEMPLATE}
METADATA = {"name": str, "labels?": dict}
SELECTOR = {"podSelector": {"matchLabels": dict}}
# kubeflow.org/v2beta1, networking.k8s.io/v1
DEFINITIONS = {
    "MPIJob": {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": str,
        "metadata": METADATA,
        "spec": {
            "slotsPerWorker?": int,
            "runPolicy?": {"cleanPodPolicy?": str},
            "mpiImplementation?": str,
            "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS},
        },
    },
    "NetworkPolicy": {
        "apiVersion": "networking.k8s.io/v1",
        "kind": str,
        "metadata": METADATA,
        "spec": {
            "podSelector": {"matchLabels": dict},
            "policyTypes": [str],
            "ingress": [{"from": [SELECTOR], "ports": [{"protocol": str, "port": int, "endPort?": int}]}],
        },
    },
}


def check(where, value, form):
    if isinstance(form, str):
        require(value == form, f"{where}: {value}, not {form}")
    elif isinstance(form, type):
        require(type(value) is form, f"{where}: {value!r} is no {form.__name__}")
    elif isinstance(form, list):
        require(type(value) is list and value, f"{where}: no list of anything")
        for number, item in enumerate(value):
            check(f"{where}[{number}]", item, form[0])
    else:
        require(type(value) is dict, f"{where}: no object")
        names = {name.rstrip("?") for name in form}
        require(set(value) <= names, f"{where}: unknown {set(value) - names}")
        for name, of in form.items():
            if name.rstrip("?") in value:
                check(f"{where}.{name.rstrip('?')}", value[name.rstrip("?")], of)
            else:
                require(name.endswith("?"), f"{where}: no {name}")


def require(good, why):
    if not good:
        sys.exit(why)


def is_tried(job, page):
    """The launcher's command is that of a line of the page, but for the hosts, which the operator names."""
    container = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    words = [word.rsplit("/", 1)[-1] for word in container["command"] + container["args"]]
    for line in re.findall(r"^node1\$ (mpirun.*)$", page.replace("\\\n", " "), re.MULTILINE):
        tried = shlex.split(line.replace("mpirun.openmpi", "mpirun").replace("-H node1,node2,node3 ", ""))
        if [word.rsplit("/", 1)[-1] for word in tried] == words:
            return True
    return False


def main():
    page = open(sys.argv[1]).read()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    require(blocks, "no manifests")
    for block in blocks:
        manifest = yaml.safe_load(block)
        kind = manifest.get("kind")
        require(kind in DEFINITIONS, f"unknown kind {kind}")
        check(kind, manifest, DEFINITIONS[kind])
        require(kind != "MPIJob" or is_tried(manifest, page), "the launcher's command is no line of the page")


main()
