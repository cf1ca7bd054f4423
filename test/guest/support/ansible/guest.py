"""Ansible's way into a throwaway guest (scripts/guest run), for tests: guests have no network."""
import subprocess

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: guest
short_description: run in a guest of scripts/guest
description: For tests of the role vgpu_agent. The inventory name is the guest's name.
author: vgpu-agent maintainers
options:
  script:
    description: scripts/guest of the checkout
    vars: [{name: guest_script}]
    required: true
  remote_addr:
    description: the guest
    vars: [{name: inventory_hostname}]
"""


class Connection(ConnectionBase):
    transport = "guest"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def _run(self, command, **streams):
        guest = [self.get_option("script"), "run", self.get_option("remote_addr"), "--", "sh", "-c", command]
        return subprocess.run(guest, stderr=subprocess.PIPE, check=False, **streams)

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        ran = self._run(cmd, input=in_data or b"", stdout=subprocess.PIPE)
        return ran.returncode, ran.stdout, ran.stderr

    def put_file(self, in_path, out_path):
        with open(in_path, "rb") as file:
            self._run(f"cat >'{out_path}'", stdin=file)

    def fetch_file(self, in_path, out_path):
        with open(out_path, "wb") as file:
            self._run(f"cat '{in_path}'", stdin=subprocess.DEVNULL, stdout=file)

    def close(self):
        self._connected = False
