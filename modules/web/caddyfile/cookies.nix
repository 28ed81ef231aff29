# Cookies of the box itself. Pages of other hosts of its domain, sites of users among them, can
# set any number of further ones, which nobody here needs to see. A Caddy snippet.
let
  cookie = "__Host-agent_box";
in
''
  (own-cookies) {
  	@own header_regexp own Cookie (?:^|;\s*)(${cookie}=[^;]*)
  	@twice header_regexp Cookie (?:^|;\s*)${cookie}=.*;\s*${cookie}=
  	@none not header_regexp Cookie (?:^|;\s*)${cookie}=
  	# Where it is full, who comes to sign in begins with an empty one. Others keep their login.
  	@full {
  		path /login
  		method GET
  		not header_regexp Cookie (?:^|;\s*)${cookie}=
  		expression size({http.request.header.Cookie}) > 16384
  	}
  	header @full >Clear-Site-Data "\"cookies\""
  	# Of two, neither counts.
  	request_header @twice Cookie ${cookie}=
  	request_header @own Cookie {http.regexp.own.1}
  	request_header @none -Cookie
  }
''
