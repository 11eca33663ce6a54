/** Express with jsonwebtoken and http-proxy-middleware. */
import { readFileSync } from "node:fs";
import { Agent } from "node:http";
import express from "express";
import { createProxyMiddleware, fixRequestBody } from "http-proxy-middleware";
import jsonwebtoken from "jsonwebtoken";
import { allows } from "./rules.js";

const [upstream, keyFile, rolesFile] = process.argv.slice(2);
const roles = JSON.parse(readFileSync(rolesFile, "utf8"));
const key = readFileSync(keyFile, "utf8");
const rules = { algorithms: ["ES256"], issuer: "gatehouse", audience: "gatehouse" };
const app = express();
app.disable("x-powered-by");
app.use(express.json({ limit: "10mb" }));
app.use((request, response, next) => {
  try {
    const [, token] = /^Bearer (.+)$/.exec(request.headers.authorization ?? "") ?? [];
    request.user = jsonwebtoken.verify(token, key, rules).sub;
  } catch {
    response.status(401).json({ status: "error" });
    return;
  }
  if (allows(roles, request.user, request.body)) next();
  else response.status(403).json({ status: "error" });
});
app.use(
  createProxyMiddleware({
    target: upstream,
    agent: new Agent({ keepAlive: true, maxSockets: 64 }),
    on: {
      proxyReq(proxied, request) {
        proxied.removeHeader("authorization");
        proxied.setHeader("x-user", request.user);
        fixRequestBody(proxied, request);
      },
    },
  }),
);
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
