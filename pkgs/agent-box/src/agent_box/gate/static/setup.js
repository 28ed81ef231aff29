// Fill in what the link to this page holds behind #, which browsers send to nobody.
const given = new URLSearchParams(location.hash.slice(1));
for (const name of ["user", "code"]) {
  const field = document.getElementById(name);
  if (field && given.get(name)) field.value = given.get(name);
}
if (given.get("code")) {
  // Neither the history nor a bookmark shall keep it.
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("new")?.focus();
}
