# The Python runtime of a box: supervisor, launcher and command line.
{
  lib,
  python3Packages,
}:
let
  inherit (lib.importTOML ./pyproject.toml) project;
  # "name>=1.0,<2" -> the package; nixpkgs uses the same names.
  packageOf = requirement: python3Packages.${lib.head (builtins.match "([a-z0-9-]+).*" requirement)};
in
python3Packages.buildPythonApplication {
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

  # `checks.unit` of the flake runs the tests of both packages together.
  doCheck = false;
  pythonImportsCheck = [ "agent_box" ];

  meta = {
    inherit (project) description;
    license = lib.licenses.mit;
    platforms = lib.platforms.linux;
    mainProgram = "agent-box-session";
  };
}
