"""What every benchmark needs: records, tables, charts, servers, load. Imports neither torch nor `model`."""
