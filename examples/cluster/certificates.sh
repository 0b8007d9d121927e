#!/bin/sh
# Certificates for a Dask cluster of your own, and the settings that demand them.
#
#     sh certificates.sh FOLDER
#
# Makes an authority (ca.pem) and one certificate signed by it (dask.pem, dask.key) for scheduler, workers and
# client. Whoever has the key can run code on the cluster: copy FOLDER to its machines, and to nobody else.
# With DASK_CONFIG=FOLDER/dask.yaml in the environment nothing of Dask's speaks without TLS.
set -eu
umask 077
mkdir -p "$1"
cd "$1"
subject="/CN=fermibose cluster"
openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj "$subject authority" -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey rsa:3072 -nodes -subj "$subject" -keyout dask.key -out dask.csr 2>/dev/null
openssl x509 -req -in dask.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -out dask.pem 2>/dev/null
rm -f dask.csr ca.srl
here=$(pwd)
cat > dask.yaml <<END
distributed:
  comm:
    default-scheme: tls
    require-encryption: true
    tls:
      ca-file: $here/ca.pem
      scheduler: {cert: $here/dask.pem, key: $here/dask.key}
      worker: {cert: $here/dask.pem, key: $here/dask.key}
      client: {cert: $here/dask.pem, key: $here/dask.key}
END
echo "DASK_CONFIG=$here/dask.yaml"
