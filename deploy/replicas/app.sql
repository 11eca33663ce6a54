-- Role and database for the queries. The store uses another role.
\set ON_ERROR_STOP on
\set password `cat "${APP_PASSWORD_FILE:-app-password}"`
create role app login password :'password'
  nosuperuser nocreatedb nocreaterole noreplication noinherit nobypassrls;
create database app owner app;
revoke all on database app from public;
