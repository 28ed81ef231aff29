# The test harness: boots a box in a virtual machine and proves what it promises.
{
  lib,
  python3Packages,
}:
let
  inherit (lib.importTOML ./pyproject.toml) project;
  # "name>=1.0,<2" -> the package; nixpkgs uses the same names.
  packageOf = requirement: python3Packages.${lib.head (builtins.match "([a-z0-9-]+).*" requirement)};
in
python3Packages.buildPythonPackage {
  pname = project.name;
  inherit (project) version;
  pyproject = true;

  src = lib.fileset.toSource {
    root = ./.;
    fileset = lib.fileset.unions [
      ./pyproject.toml
      ./src
    ];
  };

  build-system = [ python3Packages.setuptools ];
  dependencies = map packageOf project.dependencies;

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
