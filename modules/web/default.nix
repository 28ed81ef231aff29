# The box in the browser: who has a workspace, under which address. Each part of
# it has a file of its own.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.agent-box;
  inherit (cfg) web;

  # Lower case as browsers write it; a port, a scheme or a dot at the end would
  # be part of another origin.
  label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
  isDomain =
    name: builtins.match "(${label}\\.)*${label}" name != null && lib.stringLength name <= 253;
  # As far as names tell; which suffixes are public is not known here.
  related =
    one: other:
    one == other || lib.hasSuffix ".${one}" other || lib.hasSuffix ".${other}" one;
  registrable = name: lib.takeEnd 2 (lib.splitString "." name);
  seemsShared =
    one: other:
    registrable one == registrable other && lib.stringLength (lib.head (registrable one)) > 3;
  isOrigin = text: builtins.match "https://(${label}\\.)*${label}(:[1-9][0-9]{0,4})?" text != null;

  document = {
    inherit (web) domain origins;
    rootUser = web.user;
    inherit (web) sitesDomain;
    gate = {
      state = "/var/lib/agent-box-gate";
      idleDays = web.loginIdleDays;
      absoluteDays = web.loginMaxDays;
    };
    users = lib.genAttrs web.users (name: {
      inherit (cfg.users.${name}.web) passwordHashFile;
    });
  };

  fileOf =
    name:
    let
      file = cfg.users.${name}.web.passwordHashFile;
    in
    lib.optional (file != null) {
      assertion = builtins.match "/[^:[:space:]]+" file != null;
      message = "services.agent-box.users.${name}.web.passwordHashFile: \"${file}\" is no absolute path without spaces and colons. Write it out, for example \"/run/secrets/${name}-password-hash\".";
    };
in
{
  imports = [
    ./bans.nix
    ./connections.nix
    ./edge.nix
    ./files.nix
    ./gate.nix
    ./pages.nix
    ./sites.nix
    ./terminal.nix
    ./workspace.nix
  ];

  options.services.agent-box = {
    web = {
      enable = lib.mkEnableOption "terminals, workspace and settings in the browser, behind a login";

      domain = mkOption {
        type = types.str;
        example = "box.example.com";
        description = ''
          Host name of the box. Every user's things are below it: `https://<domain>/<user>/`.
          It must lead to this machine, where port 443 is opened.
        '';
      };

      origins = mkOption {
        type = types.listOf types.str;
        default = [ "https://${web.domain}" ];
        defaultText = lib.literalExpression ''[ "https://''${domain}" ]'';
        example = [
          "https://box.example.com"
          "https://box.example.com:8443"
        ];
        description = ''
          Origins from which pages may change anything or open a terminal, as browsers write
          them. More than the default is needed where browsers reach the box on another port.
        '';
      };

      sitesDomain = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "example-sites.org";
        description = ''
          Domain of the sites that users publish, recommended: every site is
          `https://<label>.<sitesDomain>`. It must be a registrable domain of its own, so that
          pages of users share no cookies with the box, and all names below it must lead to this
          machine (a DNS record for `*.example-sites.org`). Null: sites are below
          {option}`services.agent-box.web.domain`. A page there cannot reach the box, but its script
          can set cookies for the whole domain, up to those that sign people out.
        '';
      };

      address = mkOption {
        type = types.str;
        internal = true;
        readOnly = true;
        default = lib.head (web.origins ++ [ "https://${web.domain}" ]);
        description = "Where people are sent: the first of the origins.";
      };

      user = mkOption {
        type = types.str;
        default = if cfg.users ? agent then "agent" else lib.head (web.users ++ [ "agent" ]);
        defaultText = lib.literalMD "`agent`, or the first user where there is none of that name";
        description = "The user to whom a box without any password hands its first set-up code.";
      };

      loginIdleDays = mkOption {
        type = types.numbers.positive;
        default = 7;
        example = 0.5;
        description = "Days without use after which a login ends. Fractions count.";
      };

      loginMaxDays = mkOption {
        type = types.numbers.positive;
        default = 30;
        example = 1.5;
        description = "Days after which a login ends, used or not. Fractions count.";
      };

      users = mkOption {
        type = types.listOf types.str;
        internal = true;
        readOnly = true;
        default = lib.filter (name: cfg.users.${name}.web.enable) (lib.attrNames cfg.users);
        description = "Names of the users with a workspace.";
      };

      document = mkOption {
        type = types.raw;
        internal = true;
        readOnly = true;
        description = "The part of box.json about the browser.";
      };
    };

    users = mkOption {
      type = types.attrsOf (
        types.submodule {
          options.web = {
            enable = mkOption {
              type = types.bool;
              default = true;
              description = ''
                Give the user a workspace in the browser, if the box has any. It takes a password
                to sign in: {option}`passwordHashFile`, or a set-up code from
                `agent-box-gate setup-code`.
              '';
            };
            passwordHashFile = mkOption {
              type = types.nullOr types.str;
              default = null;
              example = "/run/secrets/alice-password-hash";
              description = ''
                File with the hash of the user's first password, from
                `caddy hash-password --algorithm argon2id`; bcrypt is accepted. It is read while
                the user has no password yet; later ones are set in the browser and kept in
                `/var/lib/agent-box-gate`.
              '';
            };
          };
        }
      );
    };
  };

  config = lib.mkMerge [
    { services.agent-box.web.document = if web.enable then document else null; }

    (lib.mkIf (cfg.enable && web.enable) {
      assertions = [
        {
          assertion = isDomain web.domain;
          message = "services.agent-box.web.domain: \"${web.domain}\" is no host name. Write it in lower case without scheme, port or path, for example \"box.example.com\".";
        }
        {
          assertion = web.sitesDomain == null || isDomain web.sitesDomain && lib.hasInfix "." web.sitesDomain;
          message = "services.agent-box.web.sitesDomain: \"${toString web.sitesDomain}\" is no domain. Write it in lower case without scheme, port or path, for example \"example-sites.org\".";
        }
        {
          assertion = web.sitesDomain == null || !related web.sitesDomain web.domain;
          message = "services.agent-box.web.sitesDomain: \"${toString web.sitesDomain}\" and services.agent-box.web.domain (\"${web.domain}\") share cookies, since one is below the other. Name a domain that is registered by itself, or set it to null.";
        }
        {
          assertion = web.users != [ ];
          message = "services.agent-box.web: no user has a workspace. Set users.<name>.web.enable for one, or turn web.enable off.";
        }
        {
          assertion = lib.elem web.user web.users;
          message = "services.agent-box.web.user: \"${web.user}\" is no user with a workspace. Name one of: ${lib.concatStringsSep ", " web.users}.";
        }
      ]
      ++ map (origin: {
        assertion = isOrigin origin;
        message = "services.agent-box.web.origins: \"${origin}\" is no origin of a page with TLS. Write it as in \"https://box.example.com:8443\", without a slash at the end.";
      }) web.origins
      ++ lib.concatMap fileOf web.users;

      warnings = lib.optional (web.sitesDomain != null && seemsShared web.sitesDomain web.domain) ''
        services.agent-box.web.sitesDomain: "${toString web.sitesDomain}" and "${web.domain}" are both below "${lib.concatStringsSep "." (registrable web.domain)}". Unless that is a public suffix, pages of users share cookies with the box all the same: name a domain that is registered by itself.'';

      # So that an agent can say where what it made is to be seen.
      systemd.services = lib.listToAttrs (
        map (
          name:
          lib.nameValuePair "agent-box-${name}" {
            environment.AGENT_BOX_URL = lib.mkDefault "${web.address}/${name}/";
          }
        ) web.users
      );
    })
  ];
}
