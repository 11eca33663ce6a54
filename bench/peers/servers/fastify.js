/** Fastify with its plugins for JWT (verified tokens cached) and for proxies. */
import { readFileSync } from "node:fs";
import proxy from "@fastify/http-proxy";
import jwt from "@fastify/jwt";
import fastify from "fastify";
import { allows } from "./rules.js";

const [upstream, keyFile, rolesFile] = process.argv.slice(2);
const roles = JSON.parse(readFileSync(rolesFile, "utf8"));
const app = fastify({ bodyLimit: 10 * 1024 * 1024 });
app.register(jwt, {
  secret: { public: readFileSync(keyFile, "utf8") },
  verify: { algorithms: ["ES256"], allowedIss: "gatehouse", allowedAud: "gatehouse", cache: 1000 },
});
app.register(proxy, {
  upstream,
  prefix: "/query",
  rewritePrefix: "/query",
  proxyPayloads: false,
  undici: { connections: 64, pipelining: 1 },
  async preHandler(request, reply) {
    try {
      await request.jwtVerify();
    } catch {
      return reply.code(401).send({ status: "error" });
    }
    if (!allows(roles, request.user.sub, request.body)) {
      return reply.code(403).send({ status: "error" });
    }
    return undefined;
  },
  replyOptions: {
    rewriteRequestHeaders: (request, { authorization: _, ...headers }) => ({
      ...headers,
      "x-user": request.user.sub,
    }),
  },
});
await app.listen({ port: 0, host: "127.0.0.1" });
console.log(app.server.address().port);
