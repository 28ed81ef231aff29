# The test harness: boots a box in a virtual machine and proves what it promises.
{
  lib,
  python3Packages,
}:
let
  project = (lib.importTOML ./pyproject.toml).project;
in
python3Packages.buildPythonPackage {
  pname = project.name;
  inherit (project) version;
  pyproject = true;

  src = lib.fileset.toSource {
    root = ./.;
    fileset = lib.fileset.unions [
      ./pyproject.toml
      (lib.fileset.maybeMissing ./scenarios)
      ./src
      (lib.fileset.maybeMissing ./tests)
    ];
  };

  build-system = [ python3Packages.setuptools ];

  dependencies = [
    python3Packages.pytest
    python3Packages.pexpect
    python3Packages.requests
    python3Packages.tenacity
    python3Packages.pyyaml
  ];

  # Its tests read the whole repository; `checks.unit` of the flake runs them there.
  doCheck = false;
  pythonImportsCheck = [ "agent_box_harness" ];

  meta = {
    inherit (project) description;
    license = lib.licenses.mit;
    platforms = lib.platforms.linux;
    mainProgram = "agent-box-harness";
  };
}
