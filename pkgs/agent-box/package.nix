# The Python runtime of a box: supervisor, launcher and command line.
{
  lib,
  python3Packages,
  tmux,
}:
let
  project = (lib.importTOML ./pyproject.toml).project;
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
      (lib.fileset.maybeMissing ./tests)
    ];
  };

  build-system = [ python3Packages.setuptools ];

  dependencies = [
    python3Packages.msgspec
    python3Packages.asyncinotify
  ];

  nativeCheckInputs = [
    python3Packages.pytestCheckHook
    python3Packages.pytest-asyncio
    python3Packages.hypothesis
    tmux
  ];
  pytestFlags = [
    "--import-mode=importlib"
    "-o"
    "asyncio_mode=auto"
  ];

  pythonImportsCheck = [ "agent_box" ];

  meta = {
    inherit (project) description;
    license = lib.licenses.mit;
    platforms = lib.platforms.linux;
    mainProgram = "agent-box-session";
  };
}
