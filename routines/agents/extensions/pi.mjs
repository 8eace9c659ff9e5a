// Hands the wake tools to pi for one turn: it takes no server by a flag, but an extension may add
// one. `direct` has the model see the tools at once, and not behind a search.
export default function (pi) {
  const server = process.env.PI_ROUTINES_SERVER;
  if (server) {
    pi.registerMcpServer("routines", { ...JSON.parse(server), exposure: "direct" });
  }
}
