-- The store's role, which owns the schema `gatehouse` in a database of its own and can do nothing
-- else. As a superuser, or whoever may make roles and databases:
--
--   psql -h db.example.com -U postgres -f store.sql
--
-- The password is asked of the file that $STORE_PASSWORD_FILE names, or else of store-password here.
\set ON_ERROR_STOP on
\set password `cat "${STORE_PASSWORD_FILE:-store-password}"`
create role gatehouse login password :'password'
  nosuperuser nocreatedb nocreaterole noreplication noinherit nobypassrls;
create database gatehouse;
revoke all on database gatehouse from public;
grant connect on database gatehouse to gatehouse;
\connect gatehouse
revoke all on schema public from public;
create schema gatehouse authorization gatehouse;
